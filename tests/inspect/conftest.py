"""The four models that inspections are tested on."""

import pytest

FAMILIES = {"mobilenetv2": 224, "resnet50": 224, "vit-tiny": 224, "yololike": 640}


@pytest.fixture(scope="session")
def families(model_cache):
    """Return the file of each of the four, by name."""
    pytest.importorskip("onnx")
    from tests.fakes.generated_models import ensure

    return {name: ensure(name, model_cache) for name in FAMILIES}


@pytest.fixture(scope="session")
def graphs(families):
    """Return the graph of each of the four at batch 1, by name."""
    from tegrascope.collectors.models.onnx_graph import read_graph

    return {
        name: read_graph(path, {"image": (1, 3, FAMILIES[name], FAMILIES[name])})
        for name, path in families.items()
    }
