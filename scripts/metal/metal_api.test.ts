import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { checkMetalApi, compareApis, readDeclarations, readHeader } from "./metal_api.ts";

const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const headers = at("../../packages/metal-sim/native/framework/include");
const published = at("../../build/mac-tools/node_modules/@nativescript/macos-node-api");
const installed = existsSync(published);

describe("the comparison of Metal's declarations", () => {
  const header = `
typedef NS_ENUM(NSUInteger, MTLMode){ MTLModeOne = (3 << 16) + 1, MTLModeTwo };
@protocol MTLThing, MTLOther;
@protocol MTLThing <NSObject>
@property(readonly) NSUInteger size;
@property(nullable, copy, atomic) NSString* label;
- (void)set:(id)x length:(NSUInteger)length
     handler:(void (^_Nullable)(void* a, int b))handler;  // a comment
+ (id)thing;
@end
extern "C" id<MTLThing> MTLMake(void);`;
  const declared = `
declare const MTLMode: {
  One: 196609,
  Two: 196610,
};
declare interface MTLThing extends NSObject {
  readonly size: number;
  setLengthHandler(x: any, length: number, handler: (p1: A<B, C>, p2: number) => void | null): void;
  setLabel(label: string | null): void;
  static thing<This extends abstract new (...args: any) => any>(this: This): InstanceType<This>;
}
declare class MTLThing {
  readonly label: string;
}
declare function MTLMake(): MTLThing;
`;
  const compare = (text: string) => compareApis(readHeader(text), readDeclarations(declared));

  it("finds equal what is", () => {
    expect(compare(header)).toEqual({ compared: 8, differences: [] });
  });

  it.each([
    ["a name", header.replace("length:", "len:"), "MTLThing.setLenHandler: 3 arguments, published not at all"],
    ["a count", header.replace("+ (id)thing", "+ (id)thing:(id)x"), "MTLThing.thing: 1 arguments, published 0"],
    [
      "a setter",
      header.replace("readonly) NSUInteger", "nonatomic) NSUInteger"),
      "MTLThing.setSize: 1 arguments, published not at all",
    ],
    ["a value", header.replace("+ 1", "+ 2"), "MTLModeOne: 196610, published 196609"],
    ["a constant", header.replace("MTLModeTwo", "MTLModeThree"), "MTLModeThree: 196610, published not at all"],
    ["a function", header.replace("Make(void)", "Make(int x)"), "MTLMake(): 1 arguments, published 0"],
  ])("notices %s", (_, text, difference) => {
    expect(compare(text).differences).toContain(difference);
  });
});

describe.skipIf(!installed)(
  `our declarations of Metal${installed ? "" : " (skipped: not installed, run `npm run metal-api`)"}`,
  () => {
    it("are the published ones", () => {
      const { compared, differences } = checkMetalApi(headers, published);
      expect(differences).toEqual([]);
      expect(compared).toBeGreaterThan(100);
    });
  },
);
