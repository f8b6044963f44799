"""Many runs -> tables with mean and deviation over seeds, pictures, one HTML page, and figures that papers printed."""
