import { MlxtsError } from "@mlxts/core";

/** The calls that use a state: one that changes it, or any number that only read it. */
export class StateUse {
  private readonly users: string[] = [];
  private changing = false;

  /**
   * Refuses `op` while a call that excludes it has not ended.
   * @throws MlxtsError `Busy`, with `details.user`
   */
  assertFree(op: string, access: "change" | "read" = "change"): void {
    const [user] = this.users;
    if (user === undefined || (access === "read" && !this.changing)) return;
    throw new MlxtsError("Busy", `${op}: the model state is in use by ${user} — await its end first`, {
      what: "model state",
      user,
    });
  }

  /** Notes the use by `op`, until the result is disposed. */
  begin(op: string, access: "change" | "read" = "change"): Disposable {
    this.assertFree(op, access);
    this.users.push(op);
    this.changing = access === "change";
    return { [Symbol.dispose]: () => void this.users.splice(this.users.indexOf(op), 1) };
  }
}
