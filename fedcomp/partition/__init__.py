"""Which client holds which samples."""
