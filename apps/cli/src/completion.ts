// Scripts that complete the command line in a shell, made from the definitions of the commands.
import { argument, type Command, command, flagOf } from "./contract.ts";
import { UsageError } from "./options.ts";

interface CompletedOption {
  readonly flag: string;
  readonly doc: string;
  readonly takesValue: boolean;
  readonly many: boolean;
  /** Files are completed where there are none. */
  readonly values: readonly string[];
}

/** What a shell completes after the name of a command. */
interface Completed {
  /** `bench op`; of a group, `bench`; empty for the program. */
  readonly name: string;
  readonly options: readonly CompletedOption[];
  /** Commands with what they do, or values of the argument. Files are completed where there are none. */
  readonly words: readonly (readonly [word: string, doc: string])[];
}

const HELP = { flag: "--help", doc: "print help", takesValue: false, many: false, values: [] };

const optionsOf = ({ options }: Command): CompletedOption[] => [
  ...Object.entries(options).map(([name, { doc, placeholder, multiple, values }]) => ({
    flag: flagOf(name),
    doc,
    takesValue: placeholder !== undefined,
    many: multiple === true,
    values: values?.() ?? [],
  })),
  HELP,
];

function completedOf(commands: readonly Command[], groups: Readonly<Record<string, string>>): Completed[] {
  const shown = commands.filter(({ hidden }) => !hidden);
  const names = [
    ...shown.flatMap(({ name, summary }) => (name.includes(" ") ? [] : [[name, summary] as const])),
    ...Object.entries(groups),
  ];
  const within = (group: string) =>
    shown.flatMap(({ name, summary }) =>
      name.startsWith(`${group} `) ? [[name.slice(group.length + 1), summary] as const] : [],
    );
  return [
    {
      name: "",
      options: [HELP, { ...HELP, flag: "--version", doc: "print the version" }],
      words: [...names, ["help", "Explain a command."]],
    },
    { name: "help", options: [], words: names },
    ...Object.keys(groups).map((name) => ({ name, options: [HELP], words: within(name) })),
    ...shown.map((each) => ({
      name: each.name,
      options: optionsOf(each),
      words: Object.values(each.arguments).flatMap(({ values }) =>
        (values?.() ?? []).map((word) => [word, ""] as const),
      ),
    })),
  ];
}

const join = (words: Completed["words"]) => words.map(([word]) => word).join(" ");
/** A text in single quotes, for all three shells: none of ours has a backslash. */
const quoted = (text: string, quote = "'\\''") => `'${text.replaceAll("'", quote)}'`;

function bash(all: readonly Completed[], groups: readonly string[]): string {
  return `_mlxts() {
  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD - 1]}" command= words=
  if [ "$COMP_CWORD" -gt 1 ]; then command="\${COMP_WORDS[1]}"; fi
  case "$command" in
    ${groups.join("|")}) if [ "$COMP_CWORD" -gt 2 ]; then command="$command \${COMP_WORDS[2]}"; fi ;;
  esac
  # \`--bits=4\` is three words.
  if [ "$word" = "=" ]; then word=; elif [ "$before" = "=" ]; then before="\${COMP_WORDS[COMP_CWORD - 2]}"; fi
  case "$command $before" in
${all
  .flatMap(({ name, options }) =>
    options.flatMap(({ flag, takesValue, values }) =>
      takesValue ? [`    ${quoted(`${name} ${flag}`)}) words=${quoted(values.join(" "))} ;;`] : [],
    ),
  )
  .join("\n")}
    *)
      case "$command/$word" in
${all
  .flatMap(({ name, options, words }) => [
    `        ${quoted(`${name}/-`)}*) words=${quoted(options.map(({ flag }) => flag).join(" "))} ;;`,
    `        ${quoted(`${name}/`)}*) words=${quoted(join(words))} ;;`,
  ])
  .join("\n")}
      esac
      ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -o bashdefault -F _mlxts mlxts
`;
}

function zsh(all: readonly Completed[], groups: readonly string[]): string {
  const plain = (text: string) => text.replace(/[[\]:\\]/g, "\\$&");
  const option = ({ flag, doc, takesValue, many, values }: CompletedOption) =>
    quoted(
      `${many ? "*" : ""}${flag}${takesValue ? "=" : ""}[${plain(doc)}]` +
        (takesValue ? `:value:${values.length > 0 ? `(${values.join(" ")})` : "_files"}` : ""),
    );
  const rest = ({ words }: Completed) =>
    words.some(([, doc]) => doc !== "")
      ? `'1:command:((${words.map(([word, doc]) => `${word}\\:${JSON.stringify(plain(doc).replaceAll("'", "’"))}`).join(" ")}))'`
      : quoted(words.length > 0 ? `*:value:(${join(words)})` : "*:file:_files");
  return `#compdef mlxts
_mlxts() {
  local command=
  if (( CURRENT > 2 )); then command="\${words[2]}"; shift words; (( CURRENT-- )); fi
  case "$command" in
    ${groups.join("|")}) if (( CURRENT > 2 )); then command="$command \${words[2]}"; shift words; (( CURRENT-- )); fi ;;
  esac
  case "$command" in
${all.map((each) => `    ${quoted(each.name)}) _arguments ${[...each.options.map(option), rest(each)].join(" ")} ;;`).join("\n")}
  esac
}
compdef _mlxts mlxts
`;
}

function fish(all: readonly Completed[], groups: readonly string[]): string {
  const line = (name: string, ...parts: string[]) =>
    ["complete -c mlxts", `-n ${quoted(`__mlxts_at "${name}"`)}`, ...parts.filter(Boolean)].join(" ");
  const described = (doc: string) => (doc === "" ? "" : `-d ${quoted(doc, "\\'")}`);
  return `function __mlxts_at
  set -l words (commandline -opc)
  set -l command "$words[2]"
  if contains -- "$command" ${groups.join(" ")}; and set -q words[3]
    set command "$command $words[3]"
  end
  test "$command" = "$argv[1]"
end
${all
  .flatMap(({ name, options, words }) => [
    ...options.map(({ flag, doc, takesValue, values }) => {
      const value = values.length > 0 ? `-x -a ${quoted(values.join(" "))}` : takesValue ? "-r" : "";
      return line(name, `-l ${flag.slice(2)}`, value, described(doc));
    }),
    ...words.map(([word, doc]) => line(name, "-f", `-a ${word}`, described(doc))),
  ])
  .join("\n")}
`;
}

const SHELLS = { bash, zsh, fish };

/** The command that prints a script for these commands and itself. */
export function completionOf(commands: readonly Command[], groups: Readonly<Record<string, string>>): Command {
  const own = command({
    name: "completion",
    summary: "Print a script that lets a shell complete commands, options and names of ops.",
    arguments: { shell: argument("bash, zsh or fish", () => Object.keys(SHELLS)) },
    options: {},
    notes: [
      "bash: add `source <(mlxts completion bash)` to ~/.bashrc; zsh: add `source <(mlxts completion zsh)` to ~/.zshrc, after",
      "compinit; fish: `mlxts completion fish > ~/.config/fish/completions/mlxts.fish`.",
    ],
    run({ shell }) {
      const write = Object.entries(SHELLS).find(([name]) => name === shell)?.[1];
      if (!write) throw new UsageError("completion", "<shell>", `be one of ${Object.keys(SHELLS).join(", ")}`, shell);
      process.stdout.write(write(completedOf([...commands, own], groups), Object.keys(groups)));
    },
  });
  return own;
}
