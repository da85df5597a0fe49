// Progressive enhancement: all pages work without scripts.
import { startLive } from "./live.js";
import { startPalette } from "./palette.js";
import { startGraphs } from "./graph.js";
import { startKeys } from "./keys.js";
import { startLogs } from "./log.js";
import { startTimes } from "./times.js";
import { startCopies, startSelections, startToasts, startConfirmations, startMenu } from "./interactions.js";

document.documentElement.classList.add("scripted");
startTimes();
startCopies();
startSelections();
startToasts();
startConfirmations();
startMenu();
startGraphs();
startLogs();
startPalette();
startKeys();
startLive();
