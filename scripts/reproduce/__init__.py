"""`make reproduce`: a paper's experiments through the ordinary grid, and the page of its results from their records.

Each paper is a module with `EXPERIMENTS`, in the order of what tells most first, and `page(records)`. A number on a
page comes from the records in docs/results/records/; a cell without a run is empty.
"""
