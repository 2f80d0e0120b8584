"""Each node of a model is held against the rules of one TensorRT."""

from collections.abc import Iterator

from ..onnx.graph import Graph, Node
from .layers import Folded, layer_of
from .measures import Built, Measure, Measures, measures_of
from .records import Finding, Judged, NodePlacement
from .rules import Operator, Precision, Rule, RuleSet

_NO_LAYER = "none"
_NOT_LISTED = Operator()
_LONGEST_WORDS = 6


def judge(graph: Graph, rules: RuleSet, built: Built) -> tuple[Judged, ...]:
    """Say of each node where it would run.

    Args:
        graph: The model.
        rules: Of the TensorRT that would build it.
        built: What it would be built for.

    Returns:
        One record a node, in the model's order; loadables and islands are not numbered yet.
    """
    return tuple(_judge(graph, node, rules, built) for node in graph.nodes)


def _judge(graph: Graph, node: Node, rules: RuleSet, built: Built) -> Judged:
    op = f"{node.domain}.{node.op}" if node.domain else node.op

    def judged(
        placement: NodePlacement,
        layer: str | None = None,
        reason: str | None = None,
        findings: tuple[Finding, ...] = (),
    ) -> Judged:
        return Judged(
            index=node.index,
            name=node.name,
            op=op,
            layer=layer,
            placement=placement,
            reason=reason,
            findings=findings,
        )

    outputs = [graph.tensor(name) for name in node.outputs if name]
    if outputs and all(one.is_constant for one in outputs):
        return judged("constant", reason="it is computed once, when the engine is built")
    listed = None if node.domain else rules.operators.get(node.op)
    operator = listed or _NOT_LISTED
    layer = layer_of(graph, node, operator)
    if isinstance(layer, Folded):
        return judged("folded", reason=layer.reason)
    kind = None if layer is None else layer.kind
    is_quantization = kind == "quantization"
    measures: Measures = {"is_known": (listed is not None,)}
    if listed is not None:
        measures["is_explicit_quantization"] = (is_quantization,)
        measures["is_supported"] = (is_quantization or kind in rules.supported,)
    found = [
        _finding(rule, values, op, operator, rules)
        for rule, values in _asked(kind or _NO_LAYER, measures, rules, built.precision)
    ]
    if not found and is_quantization:
        return judged("folded", reason="it says where to quantise")
    if not found and layer is not None:
        measures = measures_of(graph, node, layer, built)
        found = [
            _finding(rule, values, op, operator, rules)
            for rule, values in _asked(layer.kind, measures, rules, built.precision)
        ]
    broken = tuple(one for one in found if not one.is_open)
    if broken:
        return judged("gpu", kind, findings=broken)
    return judged("unknown" if found else "dla", kind, findings=tuple(found))


def _asked(
    kind: str, measures: Measures, rules: RuleSet, precision: Precision
) -> Iterator[tuple[Rule, Measure]]:
    """Yield the rules that are not kept, and what was measured instead."""
    for rule in rules.rules:
        if not rule.concerns(kind, precision) or rule.measure not in measures:
            continue
        if any(measures.get(name) != (value,) for name, value in rule.when.items()):
            continue
        values = measures[rule.measure]
        if values is None or not rule.accepts(values):
            yield rule, values


def _finding(rule: Rule, values: Measure, op: str, operator: Operator, rules: RuleSet) -> Finding:
    # Of an operator or an operation that the DLA has not, the table of operators knows best. What
    # would help against a breach is no help where it is only not known whether there is one.
    knows_better = rule.hint is None or rule.measure == "operation"
    hint = (operator.hint if knows_better else None) or rule.hint
    return Finding(
        rule=rule.id,
        says=rule.says,
        found=_words(rule, values, op),
        hint=None if values is None else hint,
        page=rules.pages[rule.page],
        certainty=rule.certainty,
        is_open=values is None or rule.outcome == "unknown",
    )


def _words(rule: Rule, values: Measure, op: str) -> str:
    """Say what was found: the values that break the rule, each once."""
    if values is None:
        return "the model does not tell"
    if rule.measure in ("is_known", "is_supported", "is_explicit_quantization"):
        return op
    wrong = list(dict.fromkeys(value for value in values if not rule.accepts((value,))))
    shown = wrong or list(values)
    words = " ".join(map(_word, shown[:_LONGEST_WORDS]))
    more = " …" if len(shown) > _LONGEST_WORDS else ""
    return f"{rule.measure.replace('_', ' ')} {words}{more}"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
