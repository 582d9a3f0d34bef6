"""Use of the time of jobs: every second of every attempt has one cause, decided from the records. Pure.

Times are whole milliseconds, so that sums over jobs, teams and weeks equal wall time exactly. The wall time of a job is
the time from its creation to its end, without the time between an end and a user's request for another attempt.
"""
