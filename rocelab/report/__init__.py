"""The report of a run: an HTML page that needs no network, figures as SVG and PNG, and a summary as CSV.

Names are imported where they are used (``rocelab.report.write``, ``rocelab.report.terminal``): drawing takes large
libraries, which a command line that draws nothing should not wait for.
"""
