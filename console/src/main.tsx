import { render } from "preact";
import "@preact/signals";
import { App } from "./app";
import { watchServer } from "./state/server";
import "./style/base.css";
import "./style/controls.css";
import "./style/views.css";
import "./style/graph.css";

watchServer();
const root = document.getElementById("app");
if (root !== null) render(<App />, root);
