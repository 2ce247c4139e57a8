// Starts `mirlo-lsp` and connects the editor with it. All that is known of a document is the server's.
"use strict";

const vscode = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

function makeClient() {
  const settings = vscode.workspace.getConfiguration("mirlo");
  const [command, ...args] = settings.get("server");
  return new LanguageClient(
    "mirlo",
    "Mirlo",
    { command, args, transport: TransportKind.stdio },
    {
      documentSelector: [{ language: "mlir" }, { language: "python" }],
      initializationOptions: { target: settings.get("target") },
    },
  );
}

async function start() {
  client = makeClient();
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(
      `Mirlo's language server does not start: pip install mirlo-editor, or set "mirlo.server". ${error.message}`,
    );
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running !== undefined && running.isRunning()) await running.stop();
}

async function showSchedule() {
  const editor = vscode.window.activeTextEditor;
  if (editor === undefined || client === undefined) return;
  const { start: first, end: last } = editor.selection;
  await client.sendRequest("workspace/executeCommand", {
    command: "mirlo.schedule",
    arguments: [editor.document.uri.toString(), first.line, last.line],
  });
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("mirlo.scheduleHere", showSchedule),
    vscode.commands.registerCommand("mirlo.restart", async () => {
      await stop();
      await start();
    }),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (!event.affectsConfiguration("mirlo")) return;
      await stop();
      await start();
    }),
  );
  await start();
}

module.exports = { activate, deactivate: stop };
