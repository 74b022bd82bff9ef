"""How models write tool calls into their text, and how that is read back.

owns            markup of each tool format, its incremental parser, the canonical spelling of arguments
does not own    templates (render), grammars, the dialect's frames
front door      hermes.HermesParser, arguments.canonical
"""
