"""Predictions of when jobs start: Kueue's order in simulated time, with durations of earlier jobs.

Everything but the records of predictions is pure. A prediction is a range that should hold in 80 % of cases; each is
kept and compared with the actual start.
"""
