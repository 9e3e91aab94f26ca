// Run in the page by contrast.py.
() => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 1;
    const brush = canvas.getContext("2d", { willReadFrequently: true });
    function rgba(color) {
        brush.clearRect(0, 0, 1, 1);
        brush.fillStyle = color;
        brush.fillRect(0, 0, 1, 1);
        const [red, green, blue, alpha] = brush.getImageData(0, 0, 1, 1).data;
        return [red, green, blue, alpha / 255];
    }
    const over = (top, below) => top.slice(0, 3).map((one, at) => one * top[3] + below[at] * (1 - top[3]));
    function ground(element) {
        const layers = [];
        for (let one = element; one; one = one.parentElement) {
            layers.push(rgba(getComputedStyle(one).backgroundColor));
            if (layers.at(-1)[3] === 1) break;
        }
        return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
    }
    function light(color) {
        const [red, green, blue] = color.map((one) => one / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    }
    function ratio(one, other) {
        const [low, high] = [light(one), light(other)].sort((first, second) => first - second);
        return (high + 0.05) / (low + 0.05);
    }
    const isSeen = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && element.getClientRects().length > 0;
    // What cannot be used now need not be read as well (WCAG 1.4.3), and what is hidden from sight is not read by eye.
    const isAside = (element) => element.closest(":disabled, .visually-hidden, option, noscript, script, style, title") !== null;
    const within = document.querySelector("dialog[open]") ?? document.body;
    const walker = document.createTreeWalker(within, NodeFilter.SHOW_TEXT);
    const offenders = [];
    let count = 0;
    while (walker.nextNode()) {
        const text = walker.currentNode.textContent.trim();
        const element = walker.currentNode.parentElement;
        if (!text || !isSeen(element) || isAside(element)) continue;
        count += 1;
        const style = getComputedStyle(element);
        const below = ground(element);
        const found = ratio(over(rgba(style.color), below), below);
        const size = parseFloat(style.fontSize);
        const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
        if (found < (isLarge ? 3 : 4.5)) offenders.push(`${found.toFixed(2)}: ${text.slice(0, 40)} (${element.className || element.tagName})`);
    }
    return { count, offenders };
}
