# Starts a host's command and passes on what happens to it, so that the first failure is also the first to be seen.
#
# When one host fails, JAX aborts its peers within a second (exit 134). Kubernetes looks at failed pods a second at a
# time and cannot tell which came first: the user's error would pass for lost hardware and be repeated for ever. So
# 134, and no other code, is passed on three seconds late. Told to leave (SIGTERM), it tells the command and waits. A
# command that then leaves with 0 was not done: it answers 143, or a job that was preempted would pass for complete.
#
# Kubernetes expands dollar-parenthesis and double dollars in commands: neither may be used here.
# JobSet counts its restarts from 0 in every JobSet; attempts and stages of a job go on.
TPUKIT_ATTEMPT=`expr "$TPUKIT_FIRST_ATTEMPT" + "$TPUKIT_RESTARTS"`
TPUKIT_STAGE=`expr "$TPUKIT_FIRST_STAGE" + "$TPUKIT_RESTARTS"`
export TPUKIT_ATTEMPT TPUKIT_STAGE
if [ -n "$TPUKIT_CODE" ]; then
  mkdir -p /tmp/code && cat "$TPUKIT_CODE"/* | tar -xzf - -C /tmp/code && cd /tmp/code || {
    echo "tpukit: the job's code could not be unpacked: the image needs tar and gzip, and room in /tmp" >&2
    exit 126
  }
fi
# Chips read memory that is locked for them, more than nodes allow by themselves.
if [ -n "$TPUKIT_MEMLOCK" ] && [ "`ulimit -l`" != unlimited ]; then
  ulimit -l "$TPUKIT_MEMLOCK" 2>/dev/null ||
    echo "tpukit: the limit of locked memory stays at `ulimit -l` KiB, so the chips may refuse to open" >&2
fi
told= child= left=
trap 'told=yes; [ -z "$child" ] || { left=yes; kill -TERM "$child" 2>/dev/null; }' TERM
"$@" &
child=$!
[ -z "$told" ] || { left=yes; kill -TERM "$child" 2>/dev/null; }
wait "$child"
code=$?
# The signal itself cuts `wait` short with 143: ask again. 127 says that the command had ended and 143 was its own.
while [ -n "$told" ] && [ "$code" -eq 143 ]; do
  told=
  wait "$child"
  again=$?
  [ "$again" -eq 127 ] || code=$again
done
child=
[ "$code" -ne 0 ] || [ -z "$left" ] || code=143
if [ "$code" -eq 134 ]; then
  sleep 3 &
  wait "$!"
  kill "$!" 2>/dev/null
fi
exit "$code"
