"""Import torch and transformers past this folder, whose safetensors.py is a generator of goldens
and would be taken for the package of that name."""
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_PATH = list(sys.path)
sys.path[:] = [entry for entry in _PATH if Path(entry or ".").resolve() != _HERE]
import safetensors.torch  # noqa: E402, F401
import torch  # noqa: E402, F401
import transformers  # noqa: E402, F401

sys.path[:] = _PATH
