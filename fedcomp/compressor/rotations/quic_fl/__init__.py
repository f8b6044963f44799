"""QUIC-FL: its tables (`tables`), and the codec that uses them (`quic_fl`)."""
