"""One pass over a whole API at start: all its rules are read, and the types found that can hold something to look at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY
from fsxds.api.rule_options import RuleGroups, RuleOptions


class RuleSurvey:
    """What an API demands, and where.

    Raises:
        ApiError: it states a rule that is not known here.
    """

    def __init__(self, catalogue: Catalogue, hooked: Collection[str]) -> None:
        """Survey a catalogue; the messages and fields of the `hooked` names are looked at whatever their rules."""
        self.options = RuleOptions(catalogue)
        self._rules: dict[str, RuleGroups] = {}
        self._held_in: defaultdict[str, set[str]] = defaultdict(set)
        self._ruled: set[str] = set()
        for descriptor in catalogue.descriptors():
            is_hooked = any(field.full_name in hooked for field in descriptor.fields)
            if self._look_at(descriptor) or is_hooked or descriptor.full_name == ANY:
                self._ruled.add(descriptor.full_name)
        self._worthwhile = self._ruled | set(hooked)
        self._spread()

    def rules_of(self, field: FieldDescriptor) -> RuleGroups:
        """Return the `validate.rules` of a field."""
        return self._rules.get(field.full_name, {})

    def is_worthwhile(self, descriptor: Descriptor) -> bool:
        """Tell whether a message of this type can hold a rule, a hooked message or an Any, at any depth."""
        return descriptor.full_name in self._worthwhile

    def has_fields_to_visit(self, descriptor: Descriptor) -> bool:
        """Tell whether it is worthwhile to look at the fields of a message, and not at the message alone."""
        return descriptor.full_name in self._ruled or any(
            field.message_type is not None and self.is_worthwhile(field.message_type) for field in descriptor.fields
        )

    def _look_at(self, descriptor: Descriptor) -> bool:
        """Read the rules of a message's own fields, and tell whether there are any."""
        has_rules = any(self.options.is_required(oneof) for oneof in descriptor.oneofs)
        for field in descriptor.fields:
            if field.message_type is not None:
                self._held_in[field.message_type.full_name].add(descriptor.full_name)
            if field.has_options:
                rules = self.options.rules_of(field)
                if rules:
                    self._rules[field.full_name] = rules
                has_rules = bool(rules) or has_rules or self.options.is_disallowed(field)
            if field.enum_type is not None:
                has_rules = has_rules or bool(self.options.disallowed_values(field.enum_type))
        return has_rules

    def _spread(self) -> None:
        """Count as worthwhile all that holds what is worthwhile."""
        waiting = list(self._worthwhile)
        while waiting:
            holders = self._held_in[waiting.pop()] - self._worthwhile
            self._worthwhile |= holders
            waiting.extend(holders)
