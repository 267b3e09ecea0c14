"""Tuning runs: tasks, measurement, tuners and reports; ``tilewright tune`` combines them.

extraction.py   the tasks of a network              tuner/       who chooses what is measured next
network.py      which task has the next trials      graph_tuner/ layouts for a whole network
measure/        builders and runners                processes/   candidates in processes of their own
cluster/        both on the workers of a cluster    compare.py   the tuned network against the untuned
layouts.py, places.py, roofline.py, report.py       what the comparison and the page about it need
"""
