"""QUIC-FL: its tables (`tables`), and the codec that uses them (`codec`)."""
