"""Google Cloud through Google's own clients, over REST: plain data out, errors of tpukit, every wait with an end."""
