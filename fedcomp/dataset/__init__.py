"""Training and test data: one file a data set, each with `load`.

Its options are explained beside their values in conf/dataset/<name>.yaml, which `fedcomp --help dataset=<name>` shows;
a docstring says what a comment there has no room for.
"""
