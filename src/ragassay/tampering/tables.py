"""Names by type, from which substitutes are drawn. All lists are our own.

A place belongs to an area (a country, or a state of the United States), so that a city can
move with its country. Where a name is common for two things (Georgia, Washington), it is
left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ragassay.tampering.words import entries

AreaKind = Literal["country", "state", "province"]


@dataclass(frozen=True, slots=True)
class Area:
    """A country, state or province.

    ``article``: it is spoken of with "the". ``demonym`` is its adjective ("" without one),
    ``language`` tells that the adjective is a language too. ``cities`` lie in it.
    """

    name: str
    kind: AreaKind
    demonym: str = ""
    article: bool = False
    language: bool = False
    cities: tuple[str, ...] = ()


# name | demonym (* where it is a language too) | cities
_COUNTRIES = """
France | French* | Paris, Lyon, Marseille, Bordeaux, Toulouse
Germany | German* | Berlin, Hamburg, Munich, Cologne, Dresden
Italy | Italian* | Rome, Milan, Naples, Turin, Bologna
Spain | Spanish* | Madrid, Barcelona, Seville, Valencia, Bilbao
Portugal | Portuguese* | Lisbon, Porto, Coimbra, Braga
England | English* | London, Manchester, Liverpool, Leeds, Bristol, Sheffield
Scotland | Scottish | Edinburgh, Glasgow, Aberdeen, Dundee
Wales | Welsh* | Cardiff, Swansea, Wrexham
Ireland | Irish* | Dublin, Cork, Galway, Limerick
Sweden | Swedish* | Stockholm, Gothenburg, Uppsala
Norway | Norwegian* | Oslo, Bergen, Trondheim
Denmark | Danish* | Copenhagen, Aarhus, Odense
Finland | Finnish* | Helsinki, Tampere, Turku
Iceland | Icelandic* | Reykjavik, Akureyri
Poland | Polish* | Warsaw, Krakow, Gdansk, Wroclaw
Austria | Austrian | Vienna, Graz, Salzburg, Linz
Switzerland | Swiss | Zurich, Geneva, Basel, Bern
Belgium | Belgian | Brussels, Antwerp, Ghent
Hungary | Hungarian* | Budapest, Debrecen, Szeged
Romania | Romanian* | Bucharest, Cluj-Napoca, Timisoara
Bulgaria | Bulgarian* | Sofia, Plovdiv, Varna
Greece | Greek* | Athens, Thessaloniki, Patras
Turkey | Turkish* | Istanbul, Ankara, Izmir
Russia | Russian* | Moscow, Saint Petersburg, Kazan
Ukraine | Ukrainian* | Kyiv, Odesa, Lviv
Croatia | Croatian* | Zagreb, Split, Rijeka
Serbia | Serbian* | Belgrade, Novi Sad
Egypt | Egyptian | Cairo, Alexandria, Giza
Morocco | Moroccan | Casablanca, Marrakesh, Rabat
Kenya | Kenyan | Nairobi, Mombasa, Kisumu
Nigeria | Nigerian | Lagos, Abuja, Ibadan
Ghana | Ghanaian | Accra, Kumasi
South Africa | South African | Johannesburg, Durban, Pretoria
Ethiopia | Ethiopian | Addis Ababa, Gondar
Israel | Israeli | Tel Aviv, Haifa
Iran | Iranian | Tehran, Isfahan, Shiraz
Iraq | Iraqi | Baghdad, Basra, Mosul
Saudi Arabia | Saudi | Riyadh, Jeddah
India | Indian | Mumbai, Delhi, New Delhi, Kolkata, Chennai, Hyderabad
Pakistan | Pakistani | Karachi, Lahore, Islamabad
Bangladesh | Bangladeshi | Dhaka, Chittagong
Sri Lanka | Sri Lankan | Colombo, Kandy
Nepal | Nepalese | Kathmandu, Pokhara
China | Chinese* | Beijing, Shanghai, Guangzhou, Nanjing
Japan | Japanese* | Tokyo, Osaka, Kyoto, Nagoya
South Korea | South Korean | Seoul, Busan, Incheon
Vietnam | Vietnamese* | Hanoi, Da Nang, Ho Chi Minh City
Thailand | Thai* | Bangkok, Chiang Mai
Indonesia | Indonesian* | Jakarta, Surabaya, Bandung
Malaysia | Malaysian | Kuala Lumpur, Johor Bahru
Australia | Australian | Sydney, Melbourne, Brisbane, Adelaide
New Zealand | New Zealand | Auckland, Wellington, Christchurch
Canada | Canadian | Toronto, Montreal, Vancouver, Ottawa, Calgary
Mexico | Mexican | Mexico City, Guadalajara, Monterrey
Cuba | Cuban | Havana, Santiago de Cuba
Brazil | Brazilian | Rio de Janeiro, Sao Paulo, Brasilia
Argentina | Argentine | Buenos Aires, Rosario
Chile | Chilean | Santiago, Valparaiso
Peru | Peruvian | Lima, Cusco, Arequipa
Colombia | Colombian | Bogota, Cali
Venezuela | Venezuelan | Caracas, Maracaibo
Uruguay | Uruguayan | Montevideo, Salto
Jamaica | Jamaican | Montego Bay
Bolivia | Bolivian |
Ecuador | Ecuadorian |
Panama | Panamanian |
Paraguay | Paraguayan |
Costa Rica | Costa Rican |
Guatemala | Guatemalan |
Honduras | Honduran |
Nicaragua | Nicaraguan |
Haiti | Haitian |
Albania | Albanian* |
Armenia | Armenian* |
Azerbaijan | Azerbaijani* |
Belarus | Belarusian* |
Bosnia | Bosnian* |
Estonia | Estonian* |
Latvia | Latvian* |
Lithuania | Lithuanian* |
Slovakia | Slovak* |
Slovenia | Slovenian* |
Cyprus | Cypriot |
Kazakhstan | Kazakh* |
Mongolia | Mongolian* |
Cambodia | Cambodian |
Afghanistan | Afghan |
Syria | Syrian |
Kuwait | Kuwaiti |
Algeria | Algerian |
Tunisia | Tunisian |
Libya | Libyan |
Angola | Angolan |
Cameroon | Cameroonian |
Senegal | Senegalese |
Somalia | Somali* |
Tanzania | Tanzanian |
Uganda | Ugandan |
Zambia | Zambian |
Zimbabwe | Zimbabwean |
"""
_COUNTRIES_WITH_ARTICLE = """
United States | American |
United Kingdom | British |
Netherlands | Dutch* | Amsterdam, Rotterdam, Utrecht
Philippines | Filipino* | Manila, Cebu City
Czech Republic | Czech* | Prague, Brno, Ostrava
Dominican Republic | Dominican | Santo Domingo
United Arab Emirates | Emirati | Dubai, Abu Dhabi
Bahamas | Bahamian | Nassau, Freeport
Maldives | Maldivian | Malé
"""
_STATES = """
California | Los Angeles, San Francisco, San Diego, Sacramento, Oakland
Texas | Houston, Dallas, Austin, San Antonio, El Paso
Illinois | Chicago, Peoria, Rockford
Massachusetts | Boston, Worcester
Pennsylvania | Philadelphia, Pittsburgh, Scranton
Ohio | Cleveland, Columbus, Cincinnati, Toledo
Michigan | Detroit, Grand Rapids, Ann Arbor
Florida | Miami, Orlando, Tampa, Jacksonville
Arizona | Tucson, Mesa
Colorado | Denver, Boulder
Oregon | Eugene, Salem
Nevada | Las Vegas, Reno
Tennessee | Nashville, Memphis, Knoxville
Louisiana | New Orleans, Baton Rouge, Shreveport
Minnesota | Minneapolis, Saint Paul, Duluth
Wisconsin | Milwaukee, Madison
Missouri | St. Louis, Kansas City
Indiana | Indianapolis, Fort Wayne
Kentucky | Louisville, Lexington
Maryland | Baltimore, Annapolis
Virginia | Norfolk, Roanoke
North Carolina | Charlotte, Raleigh
Oklahoma | Tulsa, Oklahoma City
New Mexico | Albuquerque, Santa Fe
Nebraska | Omaha, Lincoln
Utah | Salt Lake City, Provo
Hawaii | Honolulu, Hilo
New York | New York City, Buffalo, Albany, Syracuse
New Jersey | Newark, Trenton
Alabama | Birmingham, Montgomery
"""
_STATES_WITHOUT_CITIES = """
Alaska, Arkansas, Connecticut, Delaware, Idaho, Iowa, Kansas, Maine, Mississippi, Montana,
New Hampshire, North Dakota, Rhode Island, South Carolina, South Dakota, Vermont, West Virginia,
Wyoming
"""
_PROVINCES = """
Ontario, Quebec, Alberta, Manitoba, Saskatchewan, Nova Scotia, New Brunswick, British Columbia,
Newfoundland, Queensland, New South Wales, Tasmania, Western Australia, Bavaria, Saxony, Hesse,
Tuscany, Lombardy, Sicily, Sardinia, Catalonia, Andalusia, Galicia, Brittany, Burgundy, Provence,
Normandy, Alsace, Yorkshire, Cornwall, Kent, Essex, Lancashire, Devon, Surrey
"""


def _areas(text: str, kind: AreaKind, *, article: bool = False) -> list[Area]:
    found = []
    for line in text.strip().splitlines():
        name, *rest = (part.strip() for part in line.split("|"))
        demonym = rest[0] if len(rest) == 2 else ""
        found.append(
            Area(
                name=name, kind=kind, demonym=demonym.rstrip("*"), article=article,
                language=demonym.endswith("*"), cities=tuple(entries(rest[-1])),
            )
        )  # fmt: skip
    return found


AREAS: tuple[Area, ...] = (
    *_areas(_COUNTRIES, "country"),
    *_areas(_COUNTRIES_WITH_ARTICLE, "country", article=True),
    *_areas(_STATES, "state"),
    *(Area(name, "state") for name in entries(_STATES_WITHOUT_CITIES)),
    *(Area(name, "province") for name in entries(_PROVINCES)),
)
# Other spellings of areas; the substitute is written in full.
ALIASES = {
    "U.S.": "United States", "US": "United States", "USA": "United States",
    "U.S.A.": "United States", "United States of America": "United States",
    "America": "United States", "UK": "United Kingdom", "U.K.": "United Kingdom",
    "Great Britain": "England", "Britain": "England", "Holland": "Netherlands",
}  # fmt: skip
WITHOUT_ARTICLE = frozenset({"America", "Great Britain", "Britain", "Holland"})

# For a town that is in no table: names that many countries have a place of.
TOWNS = entries(
    """
    Ashland, Avondale, Bedford, Bellevue, Brookfield, Burnside, Clayton, Clifton, Dunmore,
    Eastgate, Fairview, Glenwood, Greenfield, Hillside, Hopewell, Kingsbridge, Lakewood,
    Linwood, Marlow, Midvale, Milford, Newbury, Northfield, Oakdale, Pinewood, Ridgeway,
    Riverton, Sherwood, Southgate, Stratton, Summerfield, Westbrook, Whitfield, Woodford
    """
)

# Organizations, works of nature and prizes that are replaced as whole names. A name of the
# table stands for its class wherever it occurs as an entity.
TABLES: dict[str, list[str]] = {
    "continent": entries("Africa, Asia, Europe, South America, North America"),
    "river": entries(
        """
        Amazon River, Nile River, Danube River, Rhine River, Thames River, Volga River,
        Ganges River, Mekong River, Congo River, Niger River, Hudson River, Colorado River,
        Ohio River, Mississippi River, Missouri River, Yukon River, Orinoco River, Elbe River
        """
    ),
    "sea": entries(
        """
        Atlantic Ocean, Pacific Ocean, Indian Ocean, Arctic Ocean, Mediterranean Sea, Black Sea,
        Baltic Sea, North Sea, Red Sea, Caspian Sea, Arabian Sea, Caribbean Sea, Adriatic Sea
        """
    ),
    "mountain": entries(
        """
        Mount Everest, Mount Kilimanjaro, Mount Fuji, Mount Rainier, Mount Etna, Mount Olympus,
        Mount Elbrus, Mount Kenya, Mount Whitney, Mount Cook, Mount Logan, Mount Ararat
        """
    ),
    "range": entries("Alps, Andes, Himalayas, Pyrenees, Rocky Mountains, Urals, Carpathians"),
    "lake": entries(
        "Lake Superior, Lake Michigan, Lake Victoria, Lake Erie, Lake Ontario, Lake Geneva, "
        "Lake Titicaca, Lake Baikal, Lake Como, Lake Tahoe"
    ),
    "university": entries(
        """
        Harvard University, Yale University, Princeton University, Columbia University,
        Cornell University, Brown University, Stanford University, Duke University,
        Northwestern University, Oxford University, Cambridge University, Durham University,
        Uppsala University, Leiden University, McGill University, Kyoto University,
        Boston University, Rice University, Vanderbilt University, Georgetown University
        """
    ),
    "college": entries(
        """
        Amherst College, Williams College, Swarthmore College, Dartmouth College, Oberlin College,
        Smith College, Vassar College, Trinity College, Boston College, King's College
        """
    ),
    "broadcaster": entries(
        "NBC, CBS, ABC, Fox, HBO, Showtime, AMC, ITV, CNN, PBS, MTV, Netflix, Hulu, USA Network"
    ),
    "studio": entries(
        """
        Warner Bros., Paramount Pictures, Universal Pictures, Columbia Pictures, 20th Century Fox,
        Walt Disney Pictures, Metro-Goldwyn-Mayer, Lionsgate, DreamWorks, Miramax Films,
        New Line Cinema, TriStar Pictures, Touchstone Pictures, RKO Pictures
        """
    ),
    "label": entries(
        """
        Columbia Records, Atlantic Records, Capitol Records, Island Records, Epic Records,
        Interscope Records, Geffen Records, Mercury Records, Motown Records, Elektra Records,
        Virgin Records, Sub Pop Records, Def Jam Recordings, RCA Records
        """
    ),
    "company": entries(
        """
        Microsoft, Apple, Google, Amazon, IBM, Intel, Oracle, Sony, Samsung, Toyota, Honda,
        Volkswagen, Ford, General Motors, Boeing, Airbus, Siemens, General Electric, Philips,
        Nokia, Nestlé, Unilever, Coca-Cola, PepsiCo, McDonald's, Walmart, ExxonMobil, Pfizer,
        Facebook, Nintendo, Panasonic, Toshiba, Hitachi, Adidas, Nike
        """
    ),
    "newspaper": entries(
        """
        New York Times, Washington Post, Wall Street Journal, Los Angeles Times, Chicago Tribune,
        Boston Globe, Daily Telegraph, Guardian, Financial Times, Daily Mail, USA Today
        """
    ),
    "magazine": entries(
        "Time, Newsweek, Rolling Stone, Vogue, Forbes, Billboard, Variety, Esquire, Cosmopolitan"
    ),
    "agency": entries("FBI, CIA, NSA, IRS, EPA, FDA"),
    "alliance": entries("NATO, OPEC, ASEAN, UNESCO, UNICEF, Interpol"),
    "union": entries("United Nations, European Union, African Union, Arab League, World Bank"),
    "league": entries("NBA, NFL, NHL, MLB, MLS"),
    "party": entries(
        "Democratic Party, Republican Party, Labour Party, Conservative Party, Green Party, "
        "Liberal Party, Socialist Party"
    ),
    "partisans": entries("Democrats, Republicans, Liberals, Conservatives, Socialists"),
    "partisan": entries("Democratic, Republican"),
    "religion": entries("Christian, Muslim, Jewish, Buddhist, Hindu"),
    "believers": entries("Christians, Muslims, Jews, Buddhists, Hindus"),
    "prize": entries(
        "Academy Award, Golden Globe Award, Emmy Award, Grammy Award, Tony Award, BAFTA Award"
    ),
    "prizes": entries(
        "Academy Awards, Golden Globe Awards, Emmy Awards, Grammy Awards, Tony Awards, BAFTA Awards"
    ),
    "ball club": entries(
        """
        New York Yankees, Boston Red Sox, Chicago Cubs, Los Angeles Dodgers, St. Louis Cardinals,
        San Francisco Giants, Atlanta Braves, Detroit Tigers, Houston Astros, Oakland Athletics
        """
    ),
    "gridiron club": entries(
        """
        Dallas Cowboys, Green Bay Packers, Pittsburgh Steelers, San Francisco 49ers,
        New England Patriots, Denver Broncos, Chicago Bears, Miami Dolphins, Seattle Seahawks,
        Philadelphia Eagles, Oakland Raiders, Minnesota Vikings
        """
    ),
    "court club": entries(
        """
        Los Angeles Lakers, Boston Celtics, Chicago Bulls, Miami Heat, Golden State Warriors,
        San Antonio Spurs, Detroit Pistons, Houston Rockets, Phoenix Suns, New York Knicks,
        Cleveland Cavaliers, Toronto Raptors
        """
    ),
    "football club": entries(
        """
        Manchester United, Manchester City, Liverpool F.C., Chelsea F.C., Arsenal F.C.,
        Real Madrid, FC Barcelona, Bayern Munich, Juventus, AC Milan, Inter Milan, Ajax
        """
    ),
}
# The last word of a name that is in no table tells its class.
HEADS = {
    "river": "river", "ocean": "sea", "sea": "sea", "university": "university",
    "college": "college", "records": "label", "recordings": "label", "pictures": "studio",
    "studios": "studio", "films": "studio", "corporation": "company", "inc.": "company",
    "inc": "company", "ltd": "company", "ltd.": "company", "corp.": "company", "motors": "company",
    "party": "party", "f.c.": "football club",
}  # fmt: skip
