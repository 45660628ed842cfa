"""Run a golden model in Hugging Face transformers: float32 on the CPU, eager attention, one thread.

The environment is set before torch is imported, so that its kernels do not choose by the CPU at
hand: the same packages then give the same bytes on more machines.
"""
import os

os.environ["MKL_CBWR"] = "COMPATIBLE"
os.environ["ATEN_CPU_CAPABILITY"] = "default"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

import models_file as mf  # noqa: E402
import models_forward as fw  # noqa: E402

transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

BOUND = 1e-3
# Float32 against float64 on these models: measured below 2e-6, so that this tells a wrong reading
# of the model from rounding.
AGREE = 1e-5


def libraries():
    return {"numpy": np.__version__, "torch": torch.__version__,
            "transformers": transformers.__version__}


def reference():
    return {"name": "Hugging Face LlamaForCausalLM (MistralForCausalLM for models/mistral-f16), "
                    "attn_implementation eager, no cache, weights widened to float32",
            "version": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "dtype": "float32", "device": "cpu"}


class Golden:
    """One model: Hugging Face's, and the same weights for the float64 forward."""

    def __init__(self, out, spec):
        self.name = spec["name"]
        self.spec = spec
        self.path = f"models/{self.name}"
        directory = out / "models" / self.name
        self.c = fw.shape_of(spec["config"])
        self.weights = mf.load_model(directory)
        self.hf = self._load_int4(directory) if spec.get("int4") else self._load(directory)
        self.hf.eval()
        self._check_rope()

    @staticmethod
    def _load(directory):
        """Hugging Face's own reader of the very files that the engine will read."""
        model, report = AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        wrong = {key: value for key, value in report.items() if value}
        if wrong:
            raise SystemExit(f"{directory}: Hugging Face loads it with {wrong}")
        return model

    def _load_int4(self, directory):
        """Hugging Face does not know the int4 file: it gets the float32 weights it stands for."""
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(directory), dtype=torch.float32,
            attn_implementation="eager")
        model.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in self.weights.items()})
        return model

    def _check_rope(self):
        """theta stands in four different places in the configs: none may be overlooked."""
        c, found = self.c, self.hf.model.rotary_emb.inv_freq.numpy()
        want = c["theta"] ** (-np.arange(c["head_dim"] // 2) * 2.0 / c["head_dim"])
        if found.shape != want.shape or np.abs(found / want - 1).max() > 1e-6:
            raise SystemExit(f"{self.name}: Hugging Face's inv_freq are {found}, not {want}")

    def run(self, ids):
        """(last_hidden_state [n, d], logits [vocab] of the last token), both float32."""
        with torch.no_grad():
            hidden = self.hf.model(input_ids=torch.tensor([ids]), use_cache=False)
            hidden = hidden.last_hidden_state[0]
            logits = self.hf.lm_head(hidden[-1:])[0]
        return hidden.numpy(), logits.numpy()

    def check(self, ids, hidden, logits):
        """Refuse a reference that the float64 forward does not confirm; returns what the rounding
        of K and V to f16 moves, as parts of the largest |logit| and |hidden|."""
        own_hidden, own = fw.forward(self.c, self.weights, ids)
        apart = max(fw.moved(logits, own), fw.moved(hidden, own_hidden))
        if not apart <= AGREE:
            raise SystemExit(f"{self.name}: Hugging Face and the float64 forward are {apart:.3g} "
                             "of the largest value apart")
        twin_hidden, twin = fw.forward(self.c, self.weights, ids, f16_kv=True)
        return fw.moved(twin, own), fw.moved(twin_hidden, own_hidden), apart
