"""What entities and rules are asked to be: plain data, its defaults, and what of it is allowed.

Below the broker on purpose, which needs these settings and may not know of namespaces. Nothing here looks
anything up: whether a name is taken is the catalog's to say.
"""

from tandembus.descriptions.access import (
    MAX_AUTHORIZATION_RULES,
    AuthorizationRule,
    check_authorization_rules,
    check_new_keys,
)
from tandembus.descriptions.changes import (
    check_update,
    shown_size_in_megabytes,
    with_size_as_created,
)
from tandembus.descriptions.entities import (
    EntityDescription,
    EntityKind,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.descriptions.names import (
    DEFAULT_RULE_NAME,
    MAX_RULE_NAME_LENGTH,
    MAX_SUBSCRIPTION_NAME_LENGTH,
    subscription_path,
    validate_name,
    validate_rule_name,
    validate_subscription_name,
)
from tandembus.descriptions.ranges import MAX_DELIVERY_COUNT, NEVER_S
from tandembus.descriptions.records import (
    from_record,
    rule_from_record,
    rule_to_record,
    subscription_from_record,
    to_record,
    topic_from_record,
)
from tandembus.descriptions.rules import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
    default_rule,
)

__all__ = [
    "DEFAULT_RULE_NAME",
    "MAX_AUTHORIZATION_RULES",
    "MAX_DELIVERY_COUNT",
    "MAX_RULE_NAME_LENGTH",
    "MAX_SUBSCRIPTION_NAME_LENGTH",
    "NEVER_S",
    "AuthorizationRule",
    "CorrelationFilter",
    "EntityDescription",
    "EntityKind",
    "EntityStatus",
    "FalseFilter",
    "Filter",
    "QueueDescription",
    "RuleDescription",
    "SqlAction",
    "SqlFilter",
    "SubscriptionDescription",
    "TopicDescription",
    "TrueFilter",
    "check_authorization_rules",
    "check_new_keys",
    "check_update",
    "default_rule",
    "from_record",
    "rule_from_record",
    "rule_to_record",
    "shown_size_in_megabytes",
    "subscription_from_record",
    "subscription_path",
    "to_record",
    "topic_from_record",
    "validate_name",
    "validate_rule_name",
    "validate_subscription_name",
    "with_size_as_created",
]
