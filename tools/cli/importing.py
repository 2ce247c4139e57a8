"""`mirlo import`: a model, of ONNX or another form of files, as IR; weights stay in their file, the IR names them."""

from __future__ import annotations

import sys

from mirlo.driver.models import open_model
from mirlo.driver.modules import script_text, write_script
from mirlo.passes.files import save_params, write_ir
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.files import require_file


def execute(arguments: Arguments) -> None:
    """Import a model and write the IR."""
    require_file(arguments.model)
    opened = open_model(arguments.model, arguments.shapes)
    module, session = opened.module, opened.session
    store = session.params
    if arguments.output not in (None, "-"):
        assert arguments.output is not None
        if arguments.script:
            write_script(module, arguments.output, session)
            return
        write_ir(module, arguments.output, session, enable_debug_info=True)
        return
    if not store.unsaved():
        save_params(module, "stdin.mlir", session)
    else:
        print(
            f"mirlo: warning: {len(store.unsaved())} constants of the IR are not in the model's file; "
            "write it to a file, -o FILE, to have them beside it",
            file=sys.stderr,
        )
    sys.stdout.write(script_text(module) if arguments.script else module.operation.get_asm(enable_debug_info=True))
