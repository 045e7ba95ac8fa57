import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs Triton: make test-kernels")
torch = pytest.importorskip("torch")

HERE = Path(__file__).parent


def test_fused_kernels_give_the_output_and_gradients_of_the_packages_layers():
    paths = [str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if not torch.cuda.is_available():
        environment["TRITON_INTERPRET"] = "1"
    done = subprocess.run(
        [sys.executable, HERE / "kernels_against_layers.py"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 9
    for name, values in found.items():
        for what, difference in values.items():
            assert difference < 2e-5, f"{name}: {what} is off by {difference:.1e}"
