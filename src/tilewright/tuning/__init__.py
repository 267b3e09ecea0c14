"""Tuning runs: tasks, measurement, tuners and reports; ``tilewright tune`` combines them.

extraction.py   the tasks of a network              tuner/       choice of the next trials
network.py      choice of the next task             graph_tuner/ layouts for a whole network
measure/        builders and runners                processes/   candidates in processes of their own
cluster/        both on the workers of a cluster    compare.py   the tuned network against the untuned
layouts.py, places.py, roofline.py   helpers of the comparison; its page is ``report/tuning.py``
"""
