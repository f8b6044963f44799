"""Many runs -> a table with mean and deviation over seeds, and a figure."""
