"""Where the time of jobs goes: every second of every attempt has one cause, decided from evidence in the records. Pure.

Times are whole milliseconds, so that sums over jobs, teams and weeks equal wall time exactly. The wall time of a job is
that from when it was sent to its end, without the time between an end and a person's request for another attempt.
"""
