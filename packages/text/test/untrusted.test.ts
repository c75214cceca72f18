import { execFileSync } from "node:child_process";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { beforeAll, describe, expect, it } from "vitest";
import type { TokenizerOptions } from "../src/index.ts";
import { Tokenizer } from "../src/node.ts";
import { temporary, tiny } from "./fixtures.ts";
import { HARMLESS, hostileTokenizers, TEMPLATES } from "./untrusted_files.ts";

type Report = Record<string, { code: string; message: string; ms: number }>;

describe("hostile files", () => {
  let report: Report;

  beforeAll(() => {
    const child = fileURLToPath(new URL("children/untrusted.ts", import.meta.url));
    // Less memory than any of the files would take without limits.
    const command = ["--max-old-space-size=512", "--import", SOURCE_HOOKS, child, tiny];
    report = JSON.parse(execFileSync(process.execPath, command, { encoding: "utf8", timeout: 240_000 })) as Report;
  }, 250_000);

  it.each(Object.keys(TEMPLATES))("a chat template ends: %s", (name) => {
    const { code, message } = report[`template: ${name}`] as Report[string];
    expect(["LimitExceeded", "ChatTemplate"]).toContain(code);
    expect(message).toContain("chat_template.jinja: ");
  });

  it.each(Object.keys(hostileTokenizers(tiny)))("a tokenizer ends: %s", (name) => {
    const { code, message } = report[`tokenizer: ${name}`] as Report[string];
    if (HARMLESS.has(name)) expect(code).toBe("none");
    else {
      expect(["LimitExceeded", "Io"]).toContain(code);
      expect(message).toContain("tokenizer.json: ");
    }
  });

  it("each ends within its limit of time, and some more for the threads of Node.js", () => {
    for (const { ms } of Object.values(report)) expect(ms).toBeLessThan(15_000);
  });
});

interface TokenizerFile {
  normalizer: object | null;
  pre_tokenizer: { pretokenizers: object[] };
}

/** The tiny tokenizer with that chat template. */
function withTemplate(template: string, options?: TokenizerOptions): Tokenizer {
  const folder = temporary();
  copyFileSync(join(tiny, "tokenizer.json"), join(folder, "tokenizer.json"));
  writeFileSync(join(folder, "chat_template.jinja"), template);
  return new Tokenizer(folder, options);
}

describe("limits", () => {
  it("count steps: those of regular expressions that are not well known, not those of others", () => {
    const json = readFileSync(join(tiny, "tokenizer.json"), "utf8");
    const encodes = (change: (json: TokenizerFile) => void, text: string, maxSteps: number) => {
      const folder = temporary();
      const file = JSON.parse(json) as TokenizerFile;
      change(file);
      writeFileSync(join(folder, "tokenizer.json"), JSON.stringify(file));
      return () => new Tokenizer(folder, { maxSteps }).encode(text);
    };
    const split = (Regex: string) => (file: TokenizerFile) =>
      file.pre_tokenizer.pretokenizers.unshift({
        type: "Split",
        pattern: { Regex },
        behavior: "Isolated",
        invert: false,
      });
    const text = `${"a".repeat(40)}!`;
    expect(encodes(() => {}, text.repeat(1000), 1)).not.toThrow();
    expect(encodes(split("a+!"), text, 1)).not.toThrow();
    expect(encodes(split("(a+)+$"), text, 2 ** 20)).toThrow(
      expect.objectContaining({
        code: "LimitExceeded",
        message: expect.stringMatching(
          /tokenizer.json: encoding 41 characters takes more than \d+ steps \(maxSteps\)$/,
        ),
      }),
    );
  });

  const hi = [{ role: "user", content: "hi" }];

  it("can be set", () => {
    const loop = "{% set r = range(3000) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}";
    expect(() => withTemplate(loop, { maxTemplateSteps: 1000 }).chat(hi)).toThrow(/chat_template.jinja: .*steps/);
    const text = "{{ range(1000) | join(',') }}";
    expect(() => withTemplate(text, { maxTemplateCharacters: 1000 }).chat(hi)).toThrow(
      /the chat template makes (more text and lists than a template may|a text or list of more than \d+ characters)$/,
    );
    expect(withTemplate(text, { maxTemplateCharacters: 60_000 }).chat(hi)).toHaveLength(3889);
    expect(() => new Tokenizer(tiny, { maxSteps: 0 })).toThrow(
      "Tokenizer: `maxSteps` must be from 1 to 2147483647, got 0",
    );
    expect(() => new Tokenizer(tiny, { maxTemplateCharacters: "1" as never })).toThrow(
      'Tokenizer: `maxTemplateCharacters` must be a number, got "1"',
    );
    expect(() => new Tokenizer(tiny, { timeout: 1 } as never)).toThrow(
      "Tokenizer: `timeout` must be one of maxSteps, maxTemplateCharacters, maxTemplateSteps, got an unknown option",
    );
  });

  it("leave the tokenizer usable, and grow with the input", () => {
    const text = "{% for m in messages %}{{ m.content.split(',') | join(';') | upper }}{% endfor %}";
    const tokenizer = withTemplate(text, { maxTemplateCharacters: 2 ** 20 });
    expect(tokenizer.chat(hi)).toBe("HI");
    const long = `${"lorem,".repeat(300_000)}end`;
    expect(tokenizer.chat([{ role: "user", content: long }])).toBe(long.replaceAll(",", ";").toUpperCase());
    expect(tokenizer.chat(hi)).toBe("HI");
    const loop = withTemplate(
      "{% if messages[0].content == 'loop' %}{% set r = range(90000) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}{% endif %}ok",
      // The loop would take hours.
      { maxTemplateSteps: 100_000 },
    );
    for (let i = 0; i < 3; i++) {
      expect(() => loop.chat([{ role: "user", content: "loop" }])).toThrow("steps");
      expect(loop.chat(hi)).toBe("ok");
    }
  });

  it("encoding takes time in proportion to the text", () => {
    const tokenizer = new Tokenizer(tiny, { maxSteps: 1 });
    // Of the process, and the least of three: a busy machine makes others of them longer.
    const time = (text: string) => {
      const times = [1, 2, 3].map(() => {
        const begin = process.cpuUsage();
        expect(tokenizer.encode(text).length).toBeGreaterThan(0);
        const { user, system } = process.cpuUsage(begin);
        return (user + system) / 1000;
      });
      return Math.min(...times);
    };
    for (const unit of ["export class Foo { } ", "a", " "]) {
      const short = time(unit.repeat(Math.ceil(20_000 / unit.length)));
      const long = time(unit.repeat(Math.ceil(160_000 / unit.length)));
      // A text eight times as long would take 64 times as long in quadratic time.
      expect(long).toBeLessThan(32 * short + 50);
    }
  });
});
