"""What a grammar may cost: to compile, and at each step."""

from llguidance import LLParserLimits

GRAMMAR_LIMITS = LLParserLimits(
    initial_lexer_fuel=1_200_000,  # a second or two; 128 tools of five open parameters each take most of it
    step_lexer_fuel=100_000,  # a mask of 7 ms
    step_max_items=50_000,  # 2.5 ms
    max_lexer_states=25_000,  # 50 MB for one sequence
    max_grammar_size=500_000,
    verbose_errors=False,  # a message must not carry what a client wrote
)
"""source   the rates that llguidance states for its limits"""
