"""The locks belong together."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def pins(name: str) -> dict[str, str]:
    """Version by package."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found = [re.match(r"([\w.-]+)==(\S+)", line) for line in lines]
    return {pin[1].lower().replace("_", "-"): pin[2] for pin in found if pin}


def test_the_gpu_lock_adds_cuda_to_the_same_torch() -> None:
    main, gpu = pins("requirements.lock"), pins("requirements-gpu.lock")
    assert main.keys() & gpu.keys() == {"torch"}
    assert gpu["torch"] == main["torch"]
    assert {"nvidia-nccl-cu13", "nvidia-cudnn-cu13", "triton"} <= gpu.keys()


def test_every_package_of_the_gpu_lock_has_its_hash() -> None:
    text = (ROOT / "requirements-gpu.lock").read_text(encoding="utf-8")
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}\n", text)) == len(
        pins("requirements-gpu.lock")
    )
