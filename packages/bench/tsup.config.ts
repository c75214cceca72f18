import { library } from "../../tsup.base.ts";

export default library({
  entry: {
    index: "src/index.ts",
    attention: "src/attention_peers.ts",
    mlx: "src/mlx_peer.ts",
    onnx: "src/onnx_peer.ts",
    openvino: "src/openvino_peer.ts",
    torch: "src/torch_peer.ts",
  },
});
