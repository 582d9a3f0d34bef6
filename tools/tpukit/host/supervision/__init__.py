"""The supervisor of attempts on a host that is reached by SSH: starts them once, finds them, stops them, reads logs.

The package is sent to a bare machine with the shim and a launcher (supervisor.py) beside it, and run there for one
request at a time with whatever Python 3 the machine has: standard library only. A request is a line of JSON on stdin,
with bytes behind it where it brings code; the answer is a line of JSON on stdout. Nothing runs between requests but the
shims (see shim.py) and the watch over an attempt's driver (see host_unattended.py), so it can be killed at any moment,
run forty times at once, or be replaced by another version.

Files, below the folder that holds this program's own:

    lock                   held while an attempt is being started: one attempt at a time has the chips of a host
    code/DIGEST/           code as it was staged, named by its content
    retired                the attempt that is about to have this machine deleted, and until when no other job begins
    setup/KEY              the command of that key has prepared this machine
    jobs/JOB/latest        the highest attempt of a job that was started or stopped: earlier ones never begin
    jobs/JOB/code/         the job's own copy of its code
    jobs/JOB/attempt-N/    what the shim writes of an attempt, and `owner`: the store that started it

A program may remove all of these. What runs is therefore decided by the processes of an attempt (see host_processes.py)
and not by its files alone: a shim that lives writes its files again when it is asked to, an attempt is over when no
process of it is left, and one request at a time holds a name in the kernel that no program can remove.
"""
