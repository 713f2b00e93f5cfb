"""By which names modules are installed that differ from their own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_OTHERWISE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "attr": ("attrs",),
        "bs4": ("beautifulsoup4",),
        "cv2": ("opencv-python", "opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless"),
        "Crypto": ("pycryptodome",),
        "dateutil": ("python-dateutil",),
        "distutils": ("setuptools",),
        "docx": ("python-docx",),
        "dotenv": ("python-dotenv",),
        "faiss": ("faiss-cpu", "faiss-gpu"),
        "fitz": ("pymupdf",),
        "flash_attn": ("flash-attn",),
        "git": ("gitpython",),
        "google": ("protobuf",),
        "hydra": ("hydra-core",),
        "ignite": ("pytorch-ignite",),
        "jwt": ("pyjwt",),
        "Levenshtein": ("levenshtein",),
        "megatron": ("megatron-core",),
        "mpl_toolkits": ("matplotlib",),
        "nvidia": ("nvidia-dali-cuda120",),
        "OpenSSL": ("pyopenssl",),
        "PIL": ("pillow", "pillow-simd"),
        "pkg_resources": ("setuptools",),
        "pl_bolts": ("lightning-bolts",),
        "pynvml": ("nvidia-ml-py", "pynvml"),
        "pytorch_lightning": ("pytorch-lightning",),
        "rouge_score": ("rouge-score",),
        "ruamel": ("ruamel.yaml",),
        "serial": ("pyserial",),
        "skimage": ("scikit-image",),
        "sklearn": ("scikit-learn",),
        "tensorboard": ("tensorboard", "tb-nightly"),
        "tensorflow": ("tensorflow", "tensorflow-cpu"),
        "torch_geometric": ("torch-geometric",),
        "transformer_engine": ("transformer-engine",),
        "umap": ("umap-learn",),
        "websocket": ("websocket-client",),
        "wx": ("wxpython",),
        "yaml": ("pyyaml",),
        "zmq": ("pyzmq",),
    }
)


def distributions_of(module: str) -> tuple[str, ...]:
    """Return by which distributions a module comes, the usual one first; most have its name."""
    return _OTHERWISE.get(module, (module.replace("_", "-"),))
