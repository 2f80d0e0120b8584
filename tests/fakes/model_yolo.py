"""A detector as small detectors are today, and as they come out of torch's exporter.

SiLU is a Sigmoid and a Mul, halves of the channels are split off and joined again, a pyramid of
pools, two upsamplings, three heads, and a tail that makes boxes of distributions: reshapes,
transpositions and elementwise work on vectors. It has the layers and the size of YOLOv8n.

Source:
    Jocher et al., Ultralytics YOLOv8, 2023: the published table of modules, widths and depths.
"""

from tests.fakes.generated_models import ExportedGraph

SIDE = 640
CLASSES = 80
_BINS = 16
# Keeps the size of activations through SiLU, as √2 does through a rectifier.
_GAIN = 1.55
_BOX = 4 * _BINS
_STRIDES = (8, 16, 32)
# On the three maps together.
PLACES = sum((SIDE // stride) ** 2 for stride in _STRIDES)


def add_yololike(graph: ExportedGraph) -> None:
    """Add the detector, from ``image`` to ``boxes``: for each place, a box and its classes."""
    backbone = _Blocks(graph)
    last = backbone.convolve("model.0", "image", (3, 16, 3), 2)
    last = backbone.convolve("model.1", last, (16, 32, 3), 2)
    last = backbone.halves("model.2", last, (32, 32), 1, is_residual=True)
    last = backbone.convolve("model.3", last, (32, 64, 3), 2)
    fine = backbone.halves("model.4", last, (64, 64), 2, is_residual=True)
    last = backbone.convolve("model.5", fine, (64, 128, 3), 2)
    middle = backbone.halves("model.6", last, (128, 128), 2, is_residual=True)
    last = backbone.convolve("model.7", middle, (128, 256, 3), 2)
    last = backbone.halves("model.8", last, (256, 256), 1, is_residual=True)
    coarse = backbone.pools("model.9", last, 256)

    last = backbone.join("model.11", [backbone.upsample("model.10", coarse), middle])
    middle = backbone.halves("model.12", last, (384, 128), 1)
    last = backbone.join("model.14", [backbone.upsample("model.13", middle), fine])
    fine = backbone.halves("model.15", last, (192, 64), 1)
    last = backbone.convolve("model.16", fine, (64, 64, 3), 2)
    middle = backbone.halves("model.18", backbone.join("model.17", [last, middle]), (192, 128), 1)
    last = backbone.convolve("model.19", middle, (128, 128, 3), 2)
    coarse = backbone.halves("model.21", backbone.join("model.20", [last, coarse]), (384, 256), 1)

    levels = [
        backbone.head(f"model.22.{at}", source, channels)
        for at, (source, channels) in enumerate(((fine, 64), (middle, 128), (coarse, 256)))
    ]
    _add_decoder(graph, levels)


class _Blocks:
    """The modules that the network repeats; each returns the name of its output."""

    def __init__(self, graph: ExportedGraph) -> None:
        self._graph = graph

    def convolve(self, name: str, source: str, shape: tuple[int, int, int], stride: int = 1) -> str:
        """Add a convolution and its SiLU."""
        found = self._graph.convolution(
            f"/{name}/conv/Conv", source, shape, stride=stride, gain=_GAIN
        )
        gate = self._graph.add("Sigmoid", f"/{name}/act/Sigmoid", [found])
        return self._graph.add("Mul", f"/{name}/act/Mul", [found, gate])

    def halves(
        self,
        name: str,
        source: str,
        channels: tuple[int, int],
        blocks: int,
        *,
        is_residual: bool = False,
    ) -> str:
        """Add a stage in which one half of the channels passes by the bottlenecks."""
        channels_in, channels_out = channels
        half = channels_out // 2
        wide = self.convolve(f"{name}.cv1", source, (channels_in, channels_out, 1))
        sizes = self._graph.integers(f"/{name}/Split.sizes", half, half)
        kept = self._graph.divide("Split", f"/{name}/Split", [wide, sizes], parts=2, axis=1)
        for block in range(blocks):
            at = f"{name}.m.{block}"
            last = self.convolve(f"{at}.cv1", kept[-1], (half, half, 3))
            last = self.convolve(f"{at}.cv2", last, (half, half, 3))
            if is_residual:
                last = self._graph.add("Add", f"/{at}/Add", [kept[-1], last])
            kept.append(last)
        joined = self.join(name, kept)
        return self.convolve(f"{name}.cv2", joined, ((2 + blocks) * half, channels_out, 1))

    def pools(self, name: str, source: str, channels: int) -> str:
        """Add the pyramid: three pools in a row, all of them and their input joined."""
        kept = [self.convolve(f"{name}.cv1", source, (channels, channels // 2, 1))]
        for at in range(3):
            kept.append(
                self._graph.add(
                    "MaxPool",
                    f"/{name}/m/MaxPool_{at}",
                    [kept[-1]],
                    kernel_shape=[5, 5],
                    strides=[1, 1],
                    pads=[2, 2, 2, 2],
                )
            )
        return self.convolve(f"{name}.cv2", self.join(name, kept), (2 * channels, channels, 1))

    def join(self, name: str, sources: list[str]) -> str:
        """Join tensors by their channels."""
        return self._graph.add("Concat", f"/{name}/Concat", sources, axis=1)

    def upsample(self, name: str, source: str) -> str:
        """Repeat every pixel twice, both ways."""
        scales = self._graph.constant(f"/{name}/Resize.scales", [1.0, 1.0, 2.0, 2.0])
        return self._graph.add(
            "Resize",
            f"/{name}/Resize",
            [source, "", scales],
            coordinate_transformation_mode="asymmetric",
            mode="nearest",
            nearest_mode="floor",
        )

    def head(self, name: str, source: str, channels: int) -> str:
        """Add one level's head; boxes first, then classes, in the channels."""
        ends = []
        for branch, width in (("cv2", _BOX), ("cv3", CLASSES)):
            last = self.convolve(f"{name}.{branch}.0", source, (channels, width, 3))
            last = self.convolve(f"{name}.{branch}.1", last, (width, width, 3))
            end = f"/{name}/{branch}.2/Conv"
            ends.append(self._graph.convolution(end, last, (width, width, 1), gain=4.0))
        return self.join(name, ends)


def _add_decoder(graph: ExportedGraph, levels: list[str]) -> None:
    """Add what makes boxes and probabilities of the three levels' maps."""
    at = "/model.22"
    shape = graph.integers(f"{at}/Reshape.shape", 0, _BOX + CLASSES, -1)
    flat = [
        graph.add("Reshape", f"{at}/Reshape_{level}", [source, shape])
        for level, source in enumerate(levels)
    ]
    joined = graph.add("Concat", f"{at}/Concat_3", flat, axis=2)
    sizes = graph.integers(f"{at}/Split.sizes", _BOX, CLASSES)
    boxes, classes = graph.divide("Split", f"{at}/Split", [joined, sizes], parts=2, axis=1)

    shape = graph.integers(f"{at}/dfl/Reshape.shape", 0, 4, _BINS, PLACES)
    bins = graph.add("Reshape", f"{at}/dfl/Reshape", [boxes, shape])
    bins = graph.add("Transpose", f"{at}/dfl/Transpose", [bins], perm=[0, 2, 1, 3])
    bins = graph.add("Softmax", f"{at}/dfl/Softmax", [bins], axis=1)
    ramp = graph.constant(
        f"{at}/dfl/conv/Conv.weight", [[[[float(step)]] for step in range(_BINS)]]
    )
    means = graph.add("Conv", f"{at}/dfl/conv/Conv", [bins, ramp], kernel_shape=[1, 1])
    shape = graph.integers(f"{at}/dfl/Reshape_1.shape", 0, 4, PLACES)
    means = graph.add("Reshape", f"{at}/dfl/Reshape_1", [means, shape])

    axis = graph.integers(f"{at}/Slice.axes", 1)
    sides = []
    for part in range(2):
        ends = [
            graph.integers(f"{at}/Slice_{part}.{end}", 2 * (part + more))
            for more, end in enumerate(("starts", "ends"))
        ]
        sides.append(graph.add("Slice", f"{at}/Slice_{part}", [means, *ends, axis]))
    anchors, strides = _places(graph, at)
    low = graph.add("Sub", f"{at}/Sub", [anchors, sides[0]])
    high = graph.add("Add", f"{at}/Add", [anchors, sides[1]])
    two = graph.constant(f"{at}/two", 2.0)
    twice = graph.add("Add", f"{at}/Add_1", [low, high])
    centre = graph.add("Div", f"{at}/Div", [twice, two])
    size = graph.add("Sub", f"{at}/Sub_1", [high, low])
    box = graph.add("Concat", f"{at}/Concat_4", [centre, size], axis=1)
    scaled = graph.add("Mul", f"{at}/Mul", [box, strides])
    sure = graph.add("Sigmoid", f"{at}/Sigmoid", [classes])
    graph.add("Concat", "boxes", [scaled, sure], axis=1)


def _places(graph: ExportedGraph, at: str) -> tuple[str, str]:
    """Add the centre of every place on its map, shape (1, 2, n), and its stride, (1, n)."""
    across: list[float] = []
    down: list[float] = []
    strides: list[float] = []
    for stride in _STRIDES:
        count = SIDE // stride
        across += [x + 0.5 for _ in range(count) for x in range(count)]
        down += [y + 0.5 for y in range(count) for _ in range(count)]
        strides += [float(stride)] * count**2
    return (
        graph.constant(f"{at}/anchors", [[across, down]]),
        graph.constant(f"{at}/strides", [strides]),
    )
