"""How long the others need to go on when a rank is killed, and whether they do it rightly."""

import os

# Before torch is imported: its math libraries start a thread per core, and who forks may have none.
os.environ.setdefault("OMP_NUM_THREADS", "1")
