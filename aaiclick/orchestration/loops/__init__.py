"""Background duties. Each has `run_once`, which does one pass and returns counts; `keeper` decides who runs them when.

All are safe to run by several processes at once: the leader runs them so that the others need not, and when nobody
leads, workers that find nothing to do run the urgent ones themselves.
"""
