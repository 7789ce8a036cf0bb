"""Standard streams are closed and replaced in the middle."""

import io
import sys

from driving import train

real, sys.stdout = sys.stdout, io.StringIO()
train()
text, sys.stdout = sys.stdout.getvalue(), real
print(text.upper())
sys.stderr.close()
train()
sys.stdout.close()
