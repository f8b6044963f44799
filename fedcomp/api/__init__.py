"""fedcomp from Python: compose a config, run it, read what finished runs recorded, take the trained model away.

`import fedcomp` offers these names as `fedcomp.compose`, `fedcomp.run` and so on.
"""

from fedcomp.api.figures import figure
from fedcomp.api.runs import Run, load_runs, report, run
from fedcomp.config.compose import compose

__all__ = ["Run", "compose", "figure", "load_runs", "report", "run"]
