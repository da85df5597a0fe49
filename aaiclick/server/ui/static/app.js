// Everything here makes pages more pleasant; none of it is needed to use them.
import { startLive } from "./live.js";
import { startPalette } from "./palette.js";
import { startGraphs } from "./graph.js";
import { startKeys } from "./keys.js";
import { startLogs } from "./log.js";
import { startTimes } from "./times.js";
import { startCopies, startSelections, startToasts, startConfirmations, startMenu } from "./small.js";

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
