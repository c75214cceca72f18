// What is packed works with core of its own series of versions (packages/core/src/identity.ts). In the repository the range
// is wider: Changesets gives a major version to every package whose peer dependency leaves its range.
const { version } = require("./packages/core/package.json");

module.exports = {
  hooks: {
    beforePacking(manifest) {
      if (manifest.peerDependencies?.["@mlxts/core"]) manifest.peerDependencies["@mlxts/core"] = `^${version}`;
      return manifest;
    },
  },
};
