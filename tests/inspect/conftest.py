"""The four models that inspections are shown on, generated once a session."""

import pytest

FAMILIES = {"mobilenetv2": 224, "resnet50": 224, "vit-tiny": 224, "yololike": 640}


@pytest.fixture(scope="session")
def families(tmp_path_factory):
    """Return the file of each of the four, by name."""
    pytest.importorskip("onnx")
    from tegrascope.collectors.engines.builtin_models import ensure_model

    place = tmp_path_factory.mktemp("families")
    return {name: ensure_model(name, place) for name in FAMILIES}


@pytest.fixture(scope="session")
def graphs(families):
    """Return the graph of each of the four at batch 1, by name."""
    from tegrascope.collectors.onnx_graph import read_graph

    return {
        name: read_graph(path, {"image": (1, 3, FAMILIES[name], FAMILIES[name])})
        for name, path in families.items()
    }
