import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

/** The program of a Chromium; undefined where there is none. */
export const chromiumProgram = ["chromium", "chromium-browser", "google-chrome"].find(
  (name) => spawnSync(name, ["--version"], { stdio: "ignore" }).status === 0,
);

interface Message {
  id?: number;
  method?: string;
  params?: Record<string, unknown>;
  result?: Record<string, unknown>;
  error?: { message: string };
}

/** What page_checks.js finds. */
export interface PageFacts {
  textsInTheWay: string[];
  contrast: { text: string; least: number };
  /** Of each chart: how many points there are, and how many of them have a size and are inside of it. */
  points: { count: number; inside: number }[];
  bars: { kind: string; width: number; height: number; part: number }[];
  roofs: number;
  overflow: number;
  title: string;
  text: string;
  foreign: number;
  background: string;
}

const CHECKS = readFileSync(new URL("page_checks.js", import.meta.url), "utf8");

export interface View {
  width: number;
  scheme: "light" | "dark";
}

/** A headless Chromium with one page. It speaks the DevTools protocol over two pipes. */
export class Chromium {
  /** What pages wrote to the console, failed to load or threw. */
  readonly complaints: string[] = [];
  private readonly folder = mkdtempSync(join(tmpdir(), "mlxts-chromium-"));
  private readonly child: ChildProcess;
  private readonly waiting = new Map<number, (message: Message) => void>();
  private readonly events = new Map<string, () => void>();
  private count = 0;
  private session: string | undefined;

  constructor(program: string) {
    const options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"];
    const args = [...options, `--user-data-dir=${join(this.folder, "profile")}`, "--remote-debugging-pipe"];
    this.child = spawn(program, args, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    let text = "";
    (this.child.stdio[4] as Readable).setEncoding("utf8").on("data", (chunk: string) => {
      const messages = (text + chunk).split("\0");
      text = messages.pop() as string;
      for (const message of messages) this.received(JSON.parse(message));
    });
  }

  private received(message: Message): void {
    const { id, method, params } = message;
    if (id !== undefined) this.waiting.get(id)?.(message);
    if (method === undefined) return;
    this.events.get(method)?.();
    const loaded = method === "Network.requestWillBeSent" && (params as { request: { url: string } }).request.url;
    if (loaded && !loaded.startsWith("file:") && !loaded.startsWith("data:")) this.complaints.push(`loads ${loaded}`);
    const told = ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed"];
    if (told.includes(method)) this.complaints.push(`${method}: ${JSON.stringify(params)}`);
  }

  private send(method: string, params: Record<string, unknown> = {}): Promise<Record<string, unknown>> {
    const id = ++this.count;
    const message = JSON.stringify({ id, method, params, ...(this.session && { sessionId: this.session }) });
    (this.child.stdio[3] as Writable).write(`${message}\0`);
    return new Promise((resolve, reject) =>
      this.waiting.set(id, ({ result, error }) =>
        error ? reject(new Error(`${method}: ${error.message}`)) : resolve(result ?? {}),
      ),
    );
  }

  private event(method: string): Promise<void> {
    return new Promise((resolve) => this.events.set(method, resolve));
  }

  /** Shows a page's text as a reader with this view sees it. */
  async show(html: string, { width, scheme }: View): Promise<void> {
    if (this.session === undefined) {
      const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
      const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
      this.session = sessionId as string;
      for (const domain of ["Page", "Runtime", "Log", "Network"]) await this.send(`${domain}.enable`);
    }
    const file = join(this.folder, "page.html");
    writeFileSync(file, html);
    await this.send("Emulation.setDeviceMetricsOverride", { width, height: 900, deviceScaleFactor: 1, mobile: false });
    await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
    const loaded = this.event("Page.loadEventFired");
    await this.send("Page.navigate", { url: pathToFileURL(file).href });
    await loaded;
  }

  /** What page_checks.js finds in the page. */
  async facts(): Promise<PageFacts> {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", {
      expression: CHECKS,
      returnByValue: true,
    });
    if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
    return (result as { value: PageFacts }).value;
  }

  /** The whole page as PNG. */
  async picture(): Promise<Buffer> {
    const { data } = await this.send("Page.captureScreenshot", { captureBeyondViewport: true });
    return Buffer.from(data as string, "base64");
  }

  async close(): Promise<void> {
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.session = undefined;
    await this.send("Browser.close");
    await ended;
    // Processes that it started may write a little longer.
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  }
}
