"""What an evaluation measures beside the test set as a whole."""
