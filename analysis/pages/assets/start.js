
startScheme();
startTables();
startFigures().then(() => { document.documentElement.dataset.drawn = "yes"; });
window.osub = {drawAll, picture, csvOf, figureRows, figures};
