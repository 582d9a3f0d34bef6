"""The supervisor of attempts on a host reached by SSH: starts each attempt once, finds it, stops it, reads its log.

The package is sent to a bare machine with the shim and a launcher (supervisor.py) beside it, and runs there for one
request at a time with the machine's Python 3: standard library only. A request is a line of JSON on stdin, followed by
bytes if it brings code; the answer is a line of JSON on stdout. Nothing runs between requests except the shims (see
shim.py) and the watch over an attempt's driver (see host_unattended.py), so the supervisor can be killed at any moment,
run forty times at once, or be replaced by another version.

Files, below the folder that holds this program's own:

    lock                   held while an attempt is being started: one attempt at a time has the chips of a host
    code/DIGEST/           staged code, named by its content
    retired                the attempt that is about to have this machine deleted, and until when no other job begins
    setup/KEY              the command of that key has prepared this machine
    jobs/JOB/latest        the highest attempt of a job that was started or stopped: earlier ones never begin
    jobs/JOB/code/         the job's own copy of its code
    jobs/JOB/attempt-N/    files of the shim for an attempt, and `owner`: the store that started it

A program may remove all of these. Therefore the processes of an attempt (see host_processes.py) decide what runs, and
not its files alone: a living shim rewrites its files on request, an attempt is over when none of its processes is left,
and one request at a time holds a name in the kernel that no program can remove.
"""
