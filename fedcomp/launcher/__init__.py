"""Where the runs of a grid run: in this process, in processes of their own, as jobs of Slurm."""
