"""Times collectives inside a host: ringdist, gloo, OpenMPI, torch's fake backend, and limits of
memory."""
