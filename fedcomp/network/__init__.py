"""The clock of a network: how long a run's messages take, from their bits by client, direction and exchange."""
