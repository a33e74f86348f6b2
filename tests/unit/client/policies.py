"""Every decision policy with any parameters, as their declarations allow and the wire can tell."""

from functools import partial

from hypothesis import strategies as st

from earvoice.policies import POLICIES
from earvoice.runtime.parameter import ParameterError, parameters_of

HIGHEST = 2**31 - 1
"""Whole numbers have 32 bits on the wire."""


def values_of(parameter):
    """Any value that a parameter allows by itself."""
    if parameter.choices:
        values = st.sampled_from(parameter.choices)
    elif parameter.kind is bool:
        values = st.booleans()
    elif parameter.kind is int:
        values = st.integers(parameter.minimum, parameter.maximum or HIGHEST)
    else:
        values = st.floats(parameter.minimum, parameter.maximum)
    return st.lists(values, unique=True, max_size=4).map(tuple) if parameter.is_list else values


def build(policy, parameters):
    """A policy; None where its parameters contradict each other."""
    try:
        return policy(**parameters)
    except ParameterError:
        return None


def any_of(policy):
    values = {name: values_of(declared) for name, declared in parameters_of(policy).items()}
    parameters = st.fixed_dictionaries({}, optional=values)
    return parameters.map(partial(build, policy)).filter(lambda built: built is not None)


POLICY = st.one_of([any_of(policy) for policy in POLICIES.values()])
